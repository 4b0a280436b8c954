"""Locks that clinch shares with other libraries on Redis."""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "common"))

from shared_cases import EVERY, LONG, World, main
from partners import PATIENCE, Clinch, Partner, since
from server import Server


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


LIBRARIES = {
    "redis-py": ("plain", EVERY + [without_end]),
    "redisson": ("redisson", EVERY + [entered_twice, their_watchdog, woken_by_the_channel]),
    "node-redlock": ("plain", EVERY),
}


class RedisWorld(World):
    """A case with the server that all share."""

    def __init__(self, args, server, library, case, log):
        self.args, self.server, self.log = args, server, log
        layout, _ = LIBRARIES[library]
        store = f"redis://127.0.0.1:{server.port}/?layout={layout}"
        name = f"{case}-{library}"
        clinch = Clinch(args.clinch, store, log)
        super().__init__(clinch, library, name, name, pathlib.Path(args.work))

    def start_partner(self, watchdog=30_000):
        here = pathlib.Path(__file__).parent
        argv = {
            "redis-py": [sys.executable, str(here / "redis_py_partner.py"), self.server.port],
            "redisson": ["java", "-XX:TieredStopAtLevel=1", "-cp", self.args.java]
            + ["RedissonPartner", self.server.port, watchdog],
            "node-redlock": ["node", self.args.node, self.server.port],
        }[self.library]
        return Partner(list(map(str, argv)), self.log)

    def until_listened(self, name):
        end = time.monotonic() + PATIENCE
        while name not in self.server.cli("PUBSUB", "CHANNELS").stdout:
            assert time.monotonic() < end, "nobody listens"
            time.sleep(0.01)

    def clean(self):
        self.server.cli("FLUSHALL")


CASES = {library: cases for library, (_, cases) in LIBRARIES.items()}
sys.exit(main(CASES, RedisWorld, Server, {"node": "node-redlock"}))
