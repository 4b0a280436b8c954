"""Cases that every library passes, each once in each direction, and how they are run.

In a case `world.name` is what clinch calls the lock, and `world.theirs` what the other library does.
"""

import argparse
import pathlib
import sys
import time
import traceback

from partners import PATIENCE, since

# A lease that does not end within a case, and how soon "promptly" is against it.
LONG, PROMPTLY = 60_000, 15
# A lease that is meant to end.
SHORT = 4_000


def they_hold(world):
    """they hold: a claim that does not wait says no, and gets in after their release"""
    partner, name, theirs = world.partner(), world.name, world.theirs
    assert partner.ask("lock", theirs, LONG)
    assert world.clinch.is_refused(name)
    waiter = world.clinch.claim(name)
    assert waiter.is_silent(0.5)
    start = time.monotonic()
    assert partner.ask("unlock", theirs)
    assert waiter.next() == f"held {name}"
    world.note(f"{since(start) * 1000:.0f} ms")
    assert since(start) < PROMPTLY
    assert waiter.end() == 0
    assert not world.clinch.is_refused(name)


def we_hold(world):
    """clinch holds: their try fails, and their wait ends promptly after our release"""
    partner, name, theirs = world.partner(), world.name, world.theirs
    holder = world.clinch.hold(name)
    assert not partner.ask("try", theirs, LONG)
    partner.send("lock", theirs, LONG)
    assert partner.is_silent(0.5)
    start = time.monotonic()
    assert holder.end() == 0
    assert partner.next() == "yes"
    world.note(f"{since(start) * 1000:.0f} ms")
    assert since(start) < PROMPTLY
    assert world.clinch.is_refused(name)
    assert partner.ask("unlock", theirs)


def their_process_dies(world):
    """their process is killed: clinch gets in when the lease has ended"""
    partner, name, theirs = world.partner(), world.name, world.theirs
    assert partner.ask("lock", theirs, SHORT)
    partner.kill()
    assert world.clinch.is_refused(name)
    start = time.monotonic()
    waiter = world.clinch.claim(name)
    assert waiter.next() == f"held {name}"
    assert since(start) < SHORT / 1000 + PROMPTLY
    assert waiter.end() == 0


def our_process_dies(world):
    """clinch is killed: they get in when the lease has ended"""
    partner, name, theirs = world.partner(), world.name, world.theirs
    holder = world.clinch.hold(name, f"{SHORT}ms")
    holder.kill()
    assert not partner.ask("try", theirs, LONG)
    start = time.monotonic()
    assert partner.ask("lock", theirs, LONG)
    assert since(start) < SHORT / 1000 + PROMPTLY
    assert partner.ask("unlock", theirs)


def our_renewals(world):
    """clinch renews a short lease: their wait does not end before our release"""
    partner, name, theirs = world.partner(), world.name, world.theirs
    holder = world.clinch.hold(name, world.shortest)
    partner.send("lock", theirs, LONG)
    assert partner.is_silent(5), "they got in while clinch held"
    start = time.monotonic()
    assert holder.end() == 0
    assert partner.next() == "yes"
    assert since(start) < PROMPTLY
    assert partner.ask("unlock", theirs)


def load(world):
    """under load nobody is inside with another: a number in a file is added to, and none is lost"""
    partners, name, file = [world.partner(), world.partner()], world.name, world.work / "number"
    file.write_text("0\n")
    each, ours, threads, processes = 40, 25, 2, 4
    for partner in partners:
        partner.send("count", world.theirs, LONG, file, threads, each)
    add = f'read n <"{file}"; echo $((n + 1)) >"{file}"'
    loop = f'i=0; while [ $i -lt {ours} ]; do "$0" run -q {name} -- sh -c \'{add}\' || exit; i=$((i + 1)); done'
    clinches = [world.shell(loop) for _ in range(processes)]
    for process in clinches:
        assert process.process.wait(PATIENCE * 3) == 0
    for partner in partners:
        assert partner.next(PATIENCE * 3) == "yes"
    expected = len(partners) * threads * each + processes * ours
    assert int(file.read_text()) == expected, f"{file.read_text()} of {expected}"
    world.note(f"{expected} times")


def evicted(world):
    """an operator breaks their hold with clinch, and somebody else gets in"""
    partner, name, theirs = world.partner(), world.name, world.theirs
    assert partner.ask("lock", theirs, LONG)
    assert world.clinch.run("evict", "--yes", name).returncode == 0
    assert not world.clinch.is_refused(name)


def in_order(world):
    """whoever asks first gets in first, theirs and ours in turn"""
    name, theirs = world.name, world.theirs
    first, last = world.partner(), world.partner()
    holder = world.clinch.hold(name)
    first.send("lock", theirs, LONG)
    world.clinch.until_waiters(name, 1)
    ours = world.clinch.claim(name)
    world.clinch.until_waiters(name, 2)
    last.send("lock", theirs, LONG)
    world.clinch.until_waiters(name, 3)
    assert holder.end() == 0
    assert first.next() == "yes"
    assert ours.is_silent(0.5) and last.is_silent(0.5)
    assert first.ask("unlock", theirs)
    assert ours.next() == f"held {name}"
    assert last.is_silent(0.5)
    assert ours.end() == 0
    assert last.next() == "yes"
    assert last.ask("unlock", theirs)


EVERY = [they_hold, we_hold, their_process_dies, our_process_dies, our_renewals, evicted, load]


class World:
    """What one case works with; ends what it started."""

    # A lease of clinch that is renewed several times within a case.
    shortest = "1500ms"

    def __init__(self, clinch, library, name, theirs, work):
        self.clinch, self.library, self.name, self.theirs = clinch, library, name, theirs
        self.work = work
        self.started, self.notes = [], []

    def partner(self, **settings):
        """Another process that takes locks with the library."""
        self.started.append(self.start_partner(**settings))
        return self.started[-1]

    def shell(self, text):
        self.started.append(self.clinch.start_as(["sh", "-c", text, self.clinch.program]))
        return self.started[-1]

    def note(self, text):
        self.notes.append(text)

    def close(self):
        for process in self.started:
            process.kill()
        self.clean()


def main(libraries, world, server, optional):
    """Starts the server, runs the cases of each library there, and ends with their verdict. A
    library of `optional` is run where the tool that it is built with was found."""
    parser = argparse.ArgumentParser()
    for option in ("work", "clinch", "java", *optional):
        parser.add_argument(f"--{option}")
    args = parser.parse_args()
    libraries = dict(libraries)
    for tool, library in optional.items():
        if not getattr(args, tool):
            print(f"-- {library} was not run: there is no {tool} here", flush=True)
            del libraries[library]
    work = pathlib.Path(args.work)
    with open(work / "log", "w+", encoding="utf-8") as log:
        server = server(work / "server", log)
        try:
            return run(libraries, lambda *which: world(args, server, *which, log), log)
        finally:
            server.stop()


def run(libraries, world_of, log):
    """Runs the cases of each library, and ends with their verdict."""
    failed = sum(
        not passes(world_of(library, case.__name__), case)
        for library, cases in libraries.items()
        for case in cases
    )
    if failed:
        log.seek(0)
        sys.stderr.write("".join(log.readlines()[-40:]))
    return 1 if failed else 0


def passes(world, case):
    about = f"{world.library}: {case.__doc__}"
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
