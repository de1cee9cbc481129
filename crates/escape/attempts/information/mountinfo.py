# The workspace is given by a path of the host: whether that path is told by the table of mounts.
if CONTROL and libc.mount(host("workspace").encode(), b"/tmp", None, 0x1000, None) != 0: na("no mount for the control")
text = open("/proc/self/mountinfo").read() + open("/proc/self/mounts").read()
word = "blastbox-escape-" + NONCE
escaped("the path of the workspace on the host is told") if word in text else held("%d lines, no path of the host's stage" % text.count("\n"))
