"""Locks that clinch shares with other libraries on Redis: each case once in each direction."""

import argparse
import pathlib
import sys
import time
import traceback

from partners import PATIENCE, Clinch, Partner, Server, since

# A lease that does not end within a case, and how soon "promptly" is against it.
LONG, PROMPTLY = 60_000, 15
# A lease that is meant to end.
SHORT = 4_000


def they_hold(world):
    """they hold: a claim that does not wait says no, and gets in after their release"""
    partner, name = world.partner(), world.name
    assert partner.ask("lock", name, LONG)
    assert world.clinch.is_refused(name)
    waiter = world.clinch.claim(name)
    assert waiter.is_silent(0.5)
    start = time.monotonic()
    assert partner.ask("unlock", name)
    assert waiter.next() == f"held {name}"
    world.note(f"{since(start) * 1000:.0f} ms")
    assert since(start) < PROMPTLY
    assert waiter.end() == 0
    assert not world.clinch.is_refused(name)


def we_hold(world):
    """clinch holds: their try fails, and their wait ends promptly after our release"""
    partner, name = world.partner(), world.name
    holder = world.clinch.hold(name)
    assert not partner.ask("try", name, LONG)
    partner.send("lock", name, LONG)
    assert partner.is_silent(0.5)
    start = time.monotonic()
    assert holder.end() == 0
    assert partner.next() == "yes"
    world.note(f"{since(start) * 1000:.0f} ms")
    assert since(start) < PROMPTLY
    assert world.clinch.is_refused(name)
    assert partner.ask("unlock", name)


def their_process_dies(world):
    """their process is killed: clinch gets in when the lease has ended"""
    partner, name = world.partner(), world.name
    assert partner.ask("lock", name, SHORT)
    partner.kill()
    assert world.clinch.is_refused(name)
    start = time.monotonic()
    waiter = world.clinch.claim(name)
    assert waiter.next() == f"held {name}"
    assert since(start) < SHORT / 1000 + PROMPTLY
    assert waiter.end() == 0


def our_process_dies(world):
    """clinch is killed: they get in when the lease has ended"""
    partner, name = world.partner(), world.name
    holder = world.clinch.hold(name, f"{SHORT}ms")
    holder.kill()
    assert not partner.ask("try", name, LONG)
    start = time.monotonic()
    assert partner.ask("lock", name, LONG)
    assert since(start) < SHORT / 1000 + PROMPTLY
    assert partner.ask("unlock", name)


def our_renewals(world):
    """clinch renews a short lease: their wait does not end before our release"""
    partner, name = world.partner(), world.name
    holder = world.clinch.hold(name, "1500ms")
    partner.send("lock", name, LONG)
    assert partner.is_silent(5), "they got in while clinch held"
    start = time.monotonic()
    assert holder.end() == 0
    assert partner.next() == "yes"
    assert since(start) < PROMPTLY
    assert partner.ask("unlock", name)


def load(world):
    """under load nobody is inside with another: a number in a file is added to, and none is lost"""
    partners, name, file = [world.partner(), world.partner()], world.name, world.work / "number"
    file.write_text("0\n")
    theirs, ours, threads, processes = 40, 25, 2, 4
    for partner in partners:
        partner.send("count", name, LONG, file, threads, theirs)
    add = f'read n <"{file}"; echo $((n + 1)) >"{file}"'
    loop = f'i=0; while [ $i -lt {ours} ]; do "$0" run -q {name} -- sh -c \'{add}\' || exit; i=$((i + 1)); done'
    clinches = [world.shell(loop) for _ in range(processes)]
    for process in clinches:
        assert process.process.wait(PATIENCE * 3) == 0
    for partner in partners:
        assert partner.next(PATIENCE * 3) == "yes"
    expected = len(partners) * threads * theirs + processes * ours
    assert int(file.read_text()) == expected, f"{file.read_text()} of {expected}"
    world.note(f"{expected} times")


def evicted(world):
    """an operator breaks their hold with clinch, and somebody else gets in"""
    partner, name = world.partner(), world.name
    assert partner.ask("lock", name, LONG)
    assert world.clinch.run("evict", "--yes", name).returncode == 0
    assert not world.clinch.is_refused(name)


def without_end(world):
    """their lock without a lease is shown as one without end"""
    partner, name = world.partner(), world.name
    assert partner.ask("lock", name)
    shown = world.clinch.run("show", name).stdout
    assert "without end" in shown, shown
    assert world.clinch.is_refused(name)
    assert partner.ask("unlock", name)


def entered_twice(world):
    """they enter twice and leave once: clinch stays out until they leave again"""
    partner, name = world.partner(), world.name
    assert partner.ask("lock", name, LONG) and partner.ask("lock", name, LONG)
    shown = world.clinch.run("show", name).stdout
    assert "entered 2 times" in shown, shown
    assert partner.ask("unlock", name)
    assert world.clinch.is_refused(name)
    assert partner.ask("unlock", name)
    assert not world.clinch.is_refused(name)


def their_watchdog(world):
    """their watchdog renews a short lease: clinch waits for several of them, and then gets in"""
    partner, name = world.partner(watchdog=1500), world.name
    assert partner.ask("lock", name)
    waiter = world.clinch.claim(name)
    assert waiter.is_silent(5), "clinch got in while they held"
    assert partner.ask("unlock", name)
    assert waiter.next() == f"held {name}"
    assert waiter.end() == 0


def woken_by_the_channel(world):
    """their releases wake clinch by the channel: ten waits take less than five polls would"""
    partner, name = world.partner(), world.name
    total = 0
    for _ in range(10):
        assert partner.ask("lock", name, LONG)
        waiter = world.clinch.claim(name)
        world.until_listened(name)
        start = time.monotonic()
        assert partner.ask("unlock", name)
        assert waiter.next() == f"held {name}"
        total += since(start)
        assert waiter.end() == 0
    world.note(f"{total * 100:.0f} ms each")
    assert total < 5, f"{total} s"


EVERY = [they_hold, we_hold, their_process_dies, our_process_dies, our_renewals, evicted, load]
LIBRARIES = {
    "redis-py": ("plain", EVERY + [without_end]),
    "redisson": ("redisson", EVERY + [entered_twice, their_watchdog, woken_by_the_channel]),
    "node-redlock": ("plain", EVERY),
}


class World:
    """What one case works with; ends what it started."""

    def __init__(self, args, server, library, name, log):
        self.args, self.server, self.library, self.name, self.log = args, server, library, name, log
        self.work = pathlib.Path(args.work)
        self.clinch = Clinch(args.clinch, server.port, LIBRARIES[library][0], log)
        self.started, self.notes = [], []

    def partner(self, watchdog=30_000):
        here = pathlib.Path(__file__).parent
        argv = {
            "redis-py": [sys.executable, str(here / "redis_py_partner.py"), self.server.port],
            "redisson": ["java", "-XX:TieredStopAtLevel=1", "-cp", self.args.java]
            + ["RedissonPartner", self.server.port, watchdog],
            "node-redlock": ["node", self.args.node, self.server.port],
        }[self.library]
        self.started.append(Partner(list(map(str, argv)), self.log))
        return self.started[-1]

    def shell(self, text):
        self.started.append(self.clinch.start_as(["sh", "-c", text, self.clinch.program]))
        return self.started[-1]

    def until_listened(self, name):
        end = time.monotonic() + PATIENCE
        while name not in self.server.cli("PUBSUB", "CHANNELS").stdout:
            assert time.monotonic() < end, "nobody listens"
            time.sleep(0.01)

    def note(self, text):
        self.notes.append(text)

    def close(self):
        for process in self.started:
            process.kill()
        self.server.cli("FLUSHALL")


def main():
    parser = argparse.ArgumentParser()
    for option in ("--work", "--clinch", "--java", "--node"):
        parser.add_argument(option)
    args = parser.parse_args()
    failed = 0
    with open(pathlib.Path(args.work) / "log", "w+", encoding="utf-8") as log:
        server = Server(pathlib.Path(args.work) / "server", log)
        try:
            for library, (_, cases) in LIBRARIES.items():
                if library == "node-redlock" and not args.node:
                    print(f"-- {library} was not run: there is no node here", flush=True)
                    continue
                failed += sum(not passes(args, server, library, case, log) for case in cases)
        finally:
            server.stop()
        if failed:
            log.seek(0)
            sys.stderr.write("".join(log.readlines()[-40:]))
    sys.exit(1 if failed else 0)


def passes(args, server, library, case, log):
    world = World(args, server, library, f"{case.__name__}-{library}", log)
    about = f"{library}: {case.__doc__}"
    try:
        case(world)
    except Exception:  # a case fails in any way it likes
        traceback.print_exc()
        print(f"FAILED {about}", flush=True)
        return False
    finally:
        world.close()
    notes = f" ({', '.join(world.notes)})" if world.notes else ""
    print(f"ok {about}{notes}", flush=True)
    return True


main()
