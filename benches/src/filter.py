# Compiles the `linux.seccomp` of an OCI configuration (standard input) for the kernel, as container engines have libseccomp do it, as a
# binary tree: that loads faster than the list that libseccomp makes unasked. Writes it to the file that is named.
import json
import sys

import seccomp

ARCHITECTURES = {"SCMP_ARCH_X86": seccomp.Arch.X86, "SCMP_ARCH_X32": seccomp.Arch.X32}
COMPARISONS = {"SCMP_CMP_EQ": seccomp.EQ, "SCMP_CMP_NE": seccomp.NE, "SCMP_CMP_MASKED_EQ": seccomp.MASKED_EQ}
UNKNOWN = -1


def argument(one):
    numbers = [one["value"]] + ([one["valueTwo"]] if "valueTwo" in one else [])
    return seccomp.Arg(one["index"], COMPARISONS[one["op"]], *numbers)


def action(rule):
    return seccomp.ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else seccomp.ERRNO(rule["errnoRet"])


wanted = json.load(sys.stdin)
made = seccomp.SyscallFilter(seccomp.ERRNO(wanted["defaultErrnoRet"]))
made.set_attr(seccomp.Attr.CTL_OPTIMIZE, 2)
for name in wanted["architectures"]:
    if name in ARCHITECTURES:
        made.add_arch(ARCHITECTURES[name])
for rule in wanted["syscalls"]:
    # What is newer than this libseccomp crun and runc leave out, too. Anything else that goes wrong is an error.
    for name in (name for name in rule["names"] if seccomp.resolve_syscall(seccomp.Arch(), name) != UNKNOWN):
        made.add_rule(action(rule), name, *map(argument, rule.get("args", [])))
with open(sys.argv[1], "wb") as file:
    made.export_bpf(file)
