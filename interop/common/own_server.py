"""A server of our own, for the time of the cases."""

import pathlib
import random
import signal
import subprocess
import time


class OwnServer:
    """One on a free port of the loopback and in a folder of its own. An engine says how it is
    started (`command`), and how to tell that the one that answers is ours (`is_ours`)."""

    def __init__(self, folder, log):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        for _ in range(50):
            self.port = random.randrange(20000, 32000)
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
            if self._answers():
                return
        raise SystemExit(f"{self.command()[0]} does not start here")

    def _answers(self):
        while self.process.poll() is None:
            if self.is_ours():
                return True
            time.sleep(0.05)
        return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
