# Takes the place of the interpreter's own way to run a turn, which reads the source into a tree, the tree into objects, and back, to
# echo a last expression. A command is one turn: what it is given stands in front of its source. Errors tell no lines of `<reactor>`.
def _run_turn(text, name, register=__import__("linecache")._register_code):
    if text[:1] == "\0":
        _, given, text = text.split("\0", 2)
        given = [bytes.fromhex(word).decode("utf-8", "surrogateescape") for word in given.split(" ")]
        name, directory, unbuffered, count, *words = given
        count = int(count)
        sys.argv[:] = words[:count]
        for pair in words[count:]:
            key, _, value = pair.partition("=")
            os.environ[key] = value
        os.chdir(directory)
        if unbuffered:
            sys.stdout.reconfigure(write_through=True)
    code = compile(text, name, "exec")
    register(code, text, name)
    exec(code, sys.modules["__main__"].__dict__)
