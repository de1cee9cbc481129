// Takes one JSON document a line, runs the code in it, and says when it is over. What the last expression comes to is printed, as at a
// prompt. Node.js has lines and contexts; a guest of WebAssembly has `turns`, which reads, runs and prints.
(() => {
  let mark;
  const read = (line) => {
    const asked = JSON.parse(line);
    mark = asked.mark;
    return asked.code;
  };
  const over = (failed) => {
    process.stderr.write(mark);
    process.stdout.write(mark + Number(failed));
  };
  if (typeof turns === "function") return turns(read, over);
  const vm = require("vm"), util = require("util");
  // What a piece of code left behind and fails later belongs to no piece.
  process.on("uncaughtException", (error) => console.error(error));
  let last = Promise.resolve();
  const turn = async (line) => {
    let failed = false;
    try {
      const value = await vm.runInThisContext(read(line), { filename: "<code>" });
      if (value !== undefined) console.log(util.inspect(value));
    } catch (error) {
      failed = true;
      console.error(error);
    }
    over(failed);
  };
  const lines = require("readline").createInterface({ input: process.stdin });
  lines.on("line", (line) => (last = last.then(() => turn(line))));
})();
