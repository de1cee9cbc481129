"""Prints a receipt of `blastbox run --receipt` in short. usage: receipt.py FILE COLOUR(0|1)"""

import json
import sys

with open(sys.argv[1]) as file:
    receipt = json.load(file)
bold, green, red, plain = ("\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[0m") if sys.argv[2] == "1" else ("",) * 4


def row(what, *lines):
    for number, line in enumerate(lines):
        print(f"  {what if number == 0 else '':<12} {line}")


def counted(call):
    return f"{call['name'] or call['number']} ×{call['count']}"


took = sum(receipt["durations"].values()) / 1000
usage, host = receipt["usage"], receipt["host"]
marks = [f"{green}✔{plain} {b['boundary']}" if b["effective"] else f"{red}✘{plain} {b['boundary']}" for b in receipt["boundaries"]]
used = []
if usage["cpu_micros"] is not None:
    used.append(f"{usage['cpu_micros'] / 1000:.0f} ms of processor time")
if usage["memory_peak_bytes"] is not None:
    used.append(f"{usage['memory_peak_bytes'] / 2**20:.0f} MiB of memory at most")

print(f"{bold}the receipt{plain}, in short (`blastbox run --receipt FILE` writes all of it):")
row("box", f"{receipt['box_id']} · tier {receipt['tier']} · image {receipt['image']}")
row("outcome", f"{receipt['outcome']} {receipt['exit_code']} · {took:.0f} ms from the question until nothing was left")
row("policy", f"threat {receipt['threat']} · {receipt['policy'][:23]}…")
row("effective", "   ".join(marks))
row("denied", f"{', '.join(map(counted, receipt['denied'])) or 'nothing'} (kernel)")
row("limits met", ", ".join(f"{name} ({receipt['limits'].get(name, '')})".replace(" ()", "") for name in receipt["limits_hit"]) or "none")
if used:
    row("used", " · ".join(used))
row("weaker", *([f"{gap['code']}: {gap['explain']}" for gap in receipt["gaps"]] or ["nothing"]))
row("host", f"Linux {host['kernel']} · cgroups {host['cgroups']} · Landlock {host['landlock_abi']} · "
    f"{'root' if host['privileged'] else 'an ordinary user'}")
