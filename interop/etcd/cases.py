"""Locks that clinch shares with other libraries on etcd."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "common"))

from shared_cases import EVERY, LONG, World, in_order, main
from partners import Clinch, Partner
from server import Server


def shown(world):
    """their hold is shown, with its key as the owner"""
    partner, name = world.partner(), world.name
    assert partner.ask("lock", world.theirs, LONG)
    text = world.clinch.run("show", name).stdout
    assert f"{world.theirs}/" in text, text
    assert partner.ask("unlock", world.theirs)


CASES = EVERY + [in_order, shown]
LIBRARIES = {"etcdctl": CASES, "go": CASES, "jetcd": CASES}


class EtcdWorld(World):
    """A case with the server that all share."""

    # etcd has none below.
    shortest = "2s"

    def __init__(self, args, server, library, case, log):
        self.args, self.server, self.log = args, server, log
        name = f"{case}-{library}"
        clinch = Clinch(args.clinch, f"etcd://127.0.0.1:{server.port}", log)
        # The namespace, then the name.
        super().__init__(clinch, library, name, f"clinch/{name}", pathlib.Path(args.work))

    def start_partner(self):
        here = pathlib.Path(__file__).parent
        argv = {
            "etcdctl": [sys.executable, str(here / "etcdctl_partner.py")],
            "go": [self.args.go],
            "jetcd": ["java", "-XX:TieredStopAtLevel=1", "-cp", self.args.java, "JetcdPartner"],
        }[self.library]
        return Partner([*argv, self.server.url], self.log)

    def clean(self):
        self.server.ctl("del", "--prefix", "clinch/")


sys.exit(main(LIBRARIES, EtcdWorld, Server, {"go": "go"}))
