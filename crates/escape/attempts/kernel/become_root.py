# Every spelling of becoming user 0, for whoever is not.
if os.getuid() == 0 and not CONTROL: escaped("the payload is user 0 already")
answers = []
for name, number, arguments in (("setuid", 105, (0,)), ("setgid", 106, (0,)), ("setreuid", 113, (0, 0)), ("setresuid", 117, (0, 0, 0)), ("setresgid", 119, (0, 0, 0)), ("setgroups", 116, (0, 0)), ("setfsuid", 122, (0,))):
    result, error = syscall(number, *arguments)
    if name == "setfsuid":
        result, error = (0, None) if syscall(122, -1)[0] == 0 else (-1, "unchanged")
    answers.append("%s: %s" % (name, error or "let through"))
    if error is None: escaped(answers[-1])
held(", ".join(answers))
