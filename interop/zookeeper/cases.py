"""Locks that clinch shares with other libraries on ZooKeeper, and those that it refuses to share."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "common"))

from shared_cases import EVERY, LONG, SHORT, World, in_order, main, they_hold
from partners import Clinch, Partner
from server import Server


def refused(world):
    """their order is another: clinch says whose lock it is, and does not enter"""
    partner = world.partner()
    assert partner.ask("lock", world.theirs)
    done = world.clinch.run("run", "--no-wait", world.name, "--", "true")
    assert done.returncode not in (0, 75), done
    assert "kazoo" in done.stderr, done.stderr
    assert partner.ask("unlock", world.theirs)


def readers_together(world):
    """their reader lets ours in beside it, and keeps our writer out"""
    partner, name = world.partner(), world.name
    assert partner.ask("lock", world.theirs, LONG)
    beside = world.clinch.run("run", "--shared", "--no-wait", name, "--", "true")
    assert beside.returncode == 0, beside
    assert world.clinch.is_refused(name)
    assert partner.ask("unlock", world.theirs)


def our_reader(world):
    """our reader keeps their writer out, who enters when it leaves"""
    partner, name = world.partner(), world.name
    reader = world.clinch.start("hold", "--quiet", "--stdin", "--shared", name)
    assert reader.next().startswith(f"held {name}")
    assert not partner.ask("try", world.theirs, LONG)
    partner.send("lock", world.theirs, LONG)
    assert partner.is_silent(0.5)
    assert reader.end() == 0
    assert partner.next() == "yes"
    assert world.clinch.is_refused(name)
    assert partner.ask("unlock", world.theirs)


LIBRARIES = {
    "curator": EVERY + [in_order],
    "curator-write": [they_hold, our_reader],
    "curator-read": [readers_together],
    "go": EVERY + [in_order],
    "kazoo": [refused],
}


class ZooKeeperWorld(World):
    """A case with the server that all share."""

    def __init__(self, args, server, library, case, log):
        self.args, self.server, self.log = args, server, log
        name = f"{case}-{library}"
        clinch = Clinch(args.clinch, f"zookeeper://127.0.0.1:{server.port}/app?tick=200ms", log)
        super().__init__(clinch, library, name, f"/app/clinch/{name}", pathlib.Path(args.work))

    def start_partner(self):
        here = pathlib.Path(__file__).parent
        curator = ["java", "-XX:TieredStopAtLevel=1", "-cp", self.args.java]
        curator += ["CuratorPartner", self.server.port, SHORT]
        argv = {
            "curator": curator + ["mutex"],
            "curator-write": curator + ["write"],
            "curator-read": curator + ["read"],
            "go": [self.args.go, self.server.port, SHORT],
            "kazoo": [sys.executable, str(here / "kazoo_partner.py"), self.server.port],
        }[self.library]
        return Partner(list(map(str, argv)), self.log)

    def clean(self):
        """Nodes go with their sessions, folders by themselves."""


sys.exit(main(LIBRARIES, ZooKeeperWorld, Server, {"go": "go"}))
