"""E2B's published code interpreter SDK against a daemon that is already running; its template is the host's own Python."""

import asyncio
import base64
import threading
import time

import pytest
from e2b import NotFoundException, SandboxException, TimeoutException
from e2b_code_interpreter import AsyncSandbox, Sandbox
from e2b_code_interpreter.charts import (
    BarChart, BoxAndWhiskerChart, ChartType, LineChart, PieChart, ScatterChart, SuperChart,
)

#: Nothing is asserted with it: what needs it has hung.
PATIENCE = 60


@pytest.fixture(scope="module")
def box():
    sandbox = Sandbox.create(timeout=600, envs={"OF_THE_BOX": "there"})
    yield sandbox
    sandbox.kill()


def test_a_value_comes_back_as_text(box):
    ran = box.run_code("1 + 1")
    assert (ran.text, ran.error, len(ran.results)) == ("2", None, 1)
    assert ran.results[0].is_main_result
    assert box.run_code("'words'").text == "words"


def test_a_context_remembers_and_counts(box):
    first = box.run_code("kept = 40")
    second = box.run_code("kept + 2")
    assert second.text == "42"
    assert second.execution_count == first.execution_count + 1


def test_what_is_printed_comes_as_it_is_printed_on_both_streams(box):
    heard = []
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('more', end='')"
    ran = box.run_code(code, on_stdout=lambda said: heard.append(said.line), on_stderr=lambda said: heard.append(said.line))
    assert "".join(ran.logs.stdout) == "out\nmore"
    assert "".join(ran.logs.stderr) == "err\n"
    assert sorted("".join(heard)) == sorted("out\nerr\nmore")


def test_programs_that_code_starts_and_magic_words_work(box):
    assert "".join(box.run_code("!echo from a shell").logs.stdout).split() == ["from", "a", "shell"]
    box.run_code("%cd /tmp")
    assert box.run_code("import os; os.getcwd()").text == "/tmp"
    assert "raw" in "".join(box.run_code("import os; os.system('printf raw')").logs.stdout)


def test_an_exception_is_told_with_its_name_and_where(box):
    heard = []
    ran = box.run_code("1 / 0", on_error=heard.append)
    assert (ran.error.name, ran.error.value) == ("ZeroDivisionError", "division by zero")
    assert "----> 1 1 / 0" in ran.error.traceback
    assert heard[0].name == "ZeroDivisionError"
    assert box.run_code("def f(:").error.name == "SyntaxError"
    # And the context goes on.
    assert box.run_code("2").text == "2"


def test_waiting_at_the_top_works(box):
    assert box.run_code("import asyncio\nawait asyncio.sleep(0.01)\n7").text == "7"


def test_rich_results(box):
    ran = box.run_code(
        "from IPython.display import display, HTML, Markdown, JSON, Latex, SVG\n"
        "display(HTML('<b>bold</b>'))\ndisplay(Markdown('# title'))\ndisplay(Latex('$x$'))\n"
        "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\ndisplay(JSON({'a': 1}))\n'last'"
    )
    html, markdown, latex, svg, jsoned, last = ran.results
    assert (html.html, markdown.markdown, latex.latex) == ("<b>bold</b>", "# title", "$x$")
    assert svg.svg.startswith("<svg") and jsoned.json == {"a": 1}
    assert [result.is_main_result for result in ran.results] == [False] * 5 + [True]
    assert ran.text == "last"
    kinds = {"application/pdf": "JVBERi0=", "application/javascript": "alert(1)", "image/jpeg": "/9j/", "x/y": "else"}
    [one] = box.run_code(f"display({kinds}, raw=True)").results
    assert (one.pdf, one.javascript, one.jpeg, one.extra) == ("JVBERi0=", "alert(1)", "/9j/", {"x/y": "else"})


def test_a_figure_is_a_picture(box):
    if box.run_code("import matplotlib").error:
        pytest.skip("the host's Python has no matplotlib")
    ran = box.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
    pictures = [result.png for result in ran.results if result.png]
    assert base64.b64decode(pictures[0]).startswith(b"\x89PNG")


def chart(box, code):
    if box.run_code("import matplotlib").error:
        pytest.skip("the host's Python has no matplotlib")
    ran = box.run_code("import matplotlib.pyplot as plt\n" + code + "\nplt.show()")
    assert ran.error is None and ran.results[0].png, ran
    return ran.results[0].chart


def test_lines_and_points_are_charts(box):
    lines = chart(box, "plt.plot(['a', 'b'], [1, 2.5], label='rising')\nplt.axhline(2)\nplt.title('T')\nplt.ylabel('voltage (mV)')")
    assert isinstance(lines, LineChart) and (lines.title, lines.y_label, lines.y_unit) == ("T", "voltage (mV)", "mV")
    assert [(line.label, line.points) for line in lines.elements] == [("rising", [("a", 1), ("b", 2.5)])]
    assert (lines.x_scale, lines.x_tick_labels, lines.y_scale) == ("categorical", ["a", "b"], "linear")
    days = chart(box, "import datetime\nplt.plot([datetime.date(2026, 1, d) for d in (1, 2)], [3, 4])")
    assert days.x_scale == "datetime" and days.elements[0].points == [("2026-01-01", 3), ("2026-01-02", 4)]
    points = chart(box, "plt.scatter([1, 2], [3, 4], label='seen')")
    assert isinstance(points, ScatterChart) and points.elements[0].points == [(1, 3), (2, 4)]


def test_bars_slices_and_boxes_are_charts(box):
    bars = chart(box, "plt.barh(['x', 'y'], [5, 5])\nplt.xlabel('count')")
    assert isinstance(bars, BarChart) and bars.y_label == "count"
    assert [(bar.label, bar.group, bar.value) for bar in bars.elements] == [("x", "Group 0", 5), ("y", "Group 0", 5)]
    pie = chart(box, "plt.pie([1, 3], labels=['few', 'many'])")
    assert isinstance(pie, PieChart) and [(slice.label, slice.angle) for slice in pie.elements] == [("few", 90), ("many", 270)]
    boxes = chart(box, "plt.boxplot([[1, 2, 3, 4, 5, 90]], patch_artist=True)")
    assert isinstance(boxes, BoxAndWhiskerChart)
    (one,) = boxes.elements
    assert (one.min, one.first_quartile, one.median, one.third_quartile, one.max) == (1, 2.25, 3.5, 4.75, 5)
    assert one.outliers == [90]


def test_several_charts_are_one_and_what_is_none_is_only_a_picture(box):
    both = chart(box, "figure, (a, b) = plt.subplots(1, 2)\na.plot([1, 2])\nb.bar(['k'], [2])\nfigure.suptitle('two')")
    assert isinstance(both, SuperChart) and both.title == "two"
    assert [type(part) for part in both.elements] == [LineChart, BarChart]
    assert chart(box, "plt.imshow([[1, 2], [3, 4]])").type == ChartType.UNKNOWN
    assert chart(box, "plt.plot(range(30000))") is None


def test_a_data_frame_is_a_table_and_data(box):
    if box.run_code("import pandas").error:
        pytest.skip("the host's Python has no pandas")
    ran = box.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2], 'when': pd.to_datetime(['2024-01-02', None])})")
    result = ran.results[0]
    assert "<table" in result.html
    assert result.data["a"] == [1, 2]
    assert result.data["when"][0].startswith("2024-01-02") and result.data["when"][1] is None


def test_variables_of_the_sandbox_stay_and_those_of_a_call_go(box):
    ask = "import os; (os.environ.get('OF_THE_BOX'), os.environ.get('OF_THE_CALL'))"
    assert box.run_code(ask, envs={"OF_THE_CALL": "here"}).text == "('there', 'here')"
    assert box.run_code(ask).text == "('there', None)"


def test_a_variable_that_cannot_be_is_refused_and_costs_nothing(box):
    box.run_code("stays = 9")
    for bad in ({"A=B": "x"}, {"": "x"}, {"A": "x\0y"}):
        with pytest.raises(SandboxException, match="env_vars"):
            box.run_code("1", envs=bad)
    assert box.run_code("stays").text == "9"


def test_files_where_code_works_are_not_the_kernels_to_import(box):
    box.files.write("/home/user/random.py", "raise RuntimeError('mine')")
    try:
        other = box.create_code_context()
        assert box.run_code("1", context=other).text == "1"
        assert box.run_code("import random", context=other).error is None
        box.remove_code_context(other)
    finally:
        box.files.remove("/home/user/random.py")


def test_what_has_no_end_of_line_comes_too(box):
    assert "".join(box.run_code("for _ in range(20000): print('.', end='')").logs.stdout) == "." * 20000


def test_processes_that_code_forks_print_too(box):
    code = "import multiprocessing as m\ndef say(n): print('x' * 9000)\nwith m.get_context('fork').Pool(3) as pool: pool.map(say, range(6))"
    ran = box.run_code(code)
    assert ran.error is None
    assert "".join(ran.logs.stdout).count("x") == 54000


def test_contexts_are_apart_and_can_be_listed_begun_anew_and_removed(box):
    other = box.create_code_context(cwd="/tmp")
    assert (other.language, other.cwd) == ("python", "/tmp")
    box.run_code("mine = 1")
    assert box.run_code("mine", context=other).error.name == "NameError"
    assert box.run_code("import os; os.getcwd()", context=other).text == "/tmp"
    box.run_code("mine = 2", context=other)
    listed = box.list_code_contexts()
    assert [context.language for context in listed][:2] == ["python", "javascript"]
    assert other.id in [context.id for context in listed]
    box.restart_code_context(other)
    assert box.run_code("mine", context=other).error.name == "NameError"
    assert box.run_code("mine").text == "1"
    box.remove_code_context(other)
    with pytest.raises(NotFoundException):
        box.run_code("1", context=other)
    with pytest.raises(NotFoundException):
        box.remove_code_context(other)


def test_a_context_that_is_begun_anew_in_the_middle_says_so(box):
    context = box.create_code_context()
    ran = []
    begun = threading.Event()
    code = "import time\nprint('begun', flush=True)\ntime.sleep(600)"

    def run():
        ran.append(box.run_code(code, context=context, on_stdout=lambda _: begun.set(), timeout=PATIENCE))

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(PATIENCE)
    box.restart_code_context(context)
    thread.join(PATIENCE)
    assert ran[0].error.name == "ContextRestarting"
    box.remove_code_context(context)


def test_whoever_stops_waiting_stops_the_code_and_loses_nothing(box):
    box.run_code("before = 5")
    with pytest.raises(TimeoutException):
        box.run_code("import time\ntime.sleep(600)", timeout=1)
    begun = time.monotonic()
    assert box.run_code("before").text == "5"
    assert time.monotonic() - begun < PATIENCE


def test_a_kernel_that_dies_is_told_and_the_next_begins_anew(box):
    box.run_code("gone = 1")
    ran = box.run_code("import os; os._exit(3)")
    assert ran.error.name == "ContextRestarting"
    assert box.run_code("gone").error.name == "NameError"


def test_javascript(box):
    assert box.run_code("const a = 5; console.log('said', a); a * 2", language="javascript").text == "10"
    assert box.run_code("a + 1", language="js").text == "6"
    assert box.run_code("await new Promise((done) => setTimeout(() => done(7), 10))", language="js").text == "7"
    failed = box.run_code("throw new TypeError('bad')", language="js").error
    assert (failed.name, failed.value) == ("TypeError", "bad")
    assert box.run_code("({ x: [1] })", language="js").results[0].json == {"x": [1]}


def test_bash(box):
    box.run_code("cd /tmp; mine=kept", language="bash")
    ran = box.run_code("echo $mine in $PWD; echo wrong >&2", language="bash")
    assert ("".join(ran.logs.stdout), "".join(ran.logs.stderr)) == ("kept in /tmp\n", "wrong\n")
    assert box.run_code("echo $CALL", language="bash", envs={"CALL": "it's"}).logs.stdout == ["it's\n"]
    failed = box.run_code("(exit 3)", language="bash").error
    assert (failed.name, failed.value) == ("ExitStatus", "3")
    with pytest.raises(TimeoutException):
        box.run_code("sleep 600", language="bash", timeout=1)
    assert box.run_code("echo $mine", language="bash").logs.stdout == ["kept\n"]


def test_a_language_without_a_kernel_is_refused_by_name(box):
    with pytest.raises(SandboxException, match="no kernel for 'cobol'"):
        box.run_code("1", language="cobol")


def test_much_output_arrives_whole(box):
    ran = box.run_code("for number in range(20000): print('line', number)")
    assert "".join(ran.logs.stdout).count("\n") == 20000


def test_code_sees_the_files_of_the_sandbox(box):
    box.files.write("/home/user/note.txt", "from outside")
    assert box.run_code("open('/home/user/note.txt').read()").text == "from outside"
    box.run_code("open('/home/user/back.txt', 'w').write('from inside')")
    assert box.files.read("/home/user/back.txt") == "from inside"


def test_nobody_runs_code_without_the_token(box):
    import httpx

    headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "49999"}
    url = f"{box._jupyter_url}/execute"
    for token in ({}, {"X-Access-Token": "wrong"}):
        assert httpx.post(url, json={"code": "1"}, headers=headers | token).status_code == 401
    good = headers | {"X-Access-Token": box._envd_access_token}
    both = httpx.post(url, json={"code": "1", "context_id": "x", "language": "python"}, headers=good)
    assert both.status_code == 400
    assert httpx.post(url, json={"code": "1", "context_id": "x"}, headers=good).status_code == 404
    assert httpx.post(url, content=b"{", headers=good).status_code == 400


def test_it_works_without_waiting_in_a_thread():
    async def walk():
        sandbox = await AsyncSandbox.create(timeout=600)
        try:
            await sandbox.run_code("x = 1")
            ran = await asyncio.gather(*[sandbox.run_code("x += 1; x") for _ in range(5)])
            assert sorted(int(one.text) for one in ran) == [2, 3, 4, 5, 6]
        finally:
            await sandbox.kill()

    asyncio.run(walk())
