# Reads one JSON document a line from what was its standard input, runs the code in it, and says when it is over. What the last
# expression comes to is printed, as at a prompt.
import ast, io, json, os, sys, traceback

try:
    lines = os.fdopen(os.dup(0), "r", encoding="utf-8")
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
except OSError:
    # A guest of WebAssembly has one descriptor for it. The code finds no input either way.
    lines = open(0, "r", encoding="utf-8", closefd=False)
    sys.stdin = io.StringIO()
if os.environ.get("BLASTBOX_TOOLS"):
    # What was printed before a function is called is told with the call.
    sys.stdout.reconfigure(line_buffering=True)
space = {"__name__": "__main__", "__builtins__": __builtins__}
for line in lines:
    asked = json.loads(line)
    failed = 0
    try:
        tree = ast.parse(asked["code"], "<code>", "exec")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<code>", "eval"), space)
            if value is not None:
                print(repr(value))
    except SystemExit as end:
        failed = int(end.code not in (None, 0))
    except SyntaxError as wrong:
        failed = 1
        traceback.print_exception(type(wrong), wrong, None)
    except BaseException as wrong:
        failed = 1
        traceback.print_exception(type(wrong), wrong, wrong.__traceback__.tb_next)
    sys.stderr.flush()
    sys.stdout.flush()
    os.write(2, asked["mark"].encode())
    os.write(1, (asked["mark"] + str(failed)).encode())
