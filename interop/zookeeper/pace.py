"""One run of three libraries against one server: a pair without rivals, and a hand-over between two
processes that stay inside for 3 ms. Of clinch and of zookeeper-client `clinch bench` tells; Curator's
turns are measured here, in the same way."""

import argparse
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "common"))

from server import Server

HOLD = 3  # milliseconds, as in `clinch bench`
WARM, SPAN = 5, 5  # seconds: the virtual machine of Java needs some to get up to speed


def main():
    parser = argparse.ArgumentParser()
    for name in ("work", "clinch", "java"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    with open(work / "log", "w", encoding="utf-8") as log:
        Server.durable = True
        server = Server(work / "server", log)
    try:
        for round_ in range(2):
            print(f"round {round_ + 1}", flush=True)
            bench = ["bench", "--only", "floor,uncontended,handover", "--seconds", "2"]
            store = f"zookeeper://127.0.0.1:{server.port}"
            subprocess.run([args.clinch, *bench, "--store", store], check=True)
            curator(args.java, server.port, round_)
    finally:
        server.stop()


def curator(classes, port, round_):
    """Curator alone, then two of them."""
    alone = turns([start(classes, port, f"/pace/alone{round_}", 0)])
    pairs = [following[0] - turn[0] for turn, following in zip(alone, alone[1:])]
    print(f"Curator, a pair: {len(pairs) / SPAN:.0f}/s, {words(pairs)}")
    path = f"/pace/two{round_}"
    both = turns([start(classes, port, path, HOLD) for _ in range(2)])
    waits = [
        after[1] - before[2]
        for before, after in zip(both, both[1:])
        if before[3] != after[3] and after[0] < before[2]
    ]
    print(f"Curator, hand-over: {len(waits)} of them, {words(waits)}", flush=True)


def start(classes, port, path, hold):
    command = ["java", "-cp", classes, "CuratorPace", port, path, hold, WARM, SPAN]
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)


def turns(processes):
    """All turns in order: asked, entered, left, and whose it was."""
    found = []
    for number, process in enumerate(processes):
        output, _ = process.communicate()
        if process.returncode:
            raise SystemExit("Curator failed")
        for line in output.splitlines():
            found.append((*map(int, line.split()), number))
    return sorted(found, key=lambda turn: turn[1])


def words(spans):
    spans = sorted(spans)
    if not spans:
        raise SystemExit("Curator took no turns")
    p99 = spans[len(spans) * 99 // 100]
    return f"p50 {statistics.median(spans) / 1000:.0f}us, p99 {p99 / 1000:.0f}us"


main()
