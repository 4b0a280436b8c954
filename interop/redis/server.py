"""A Redis of our own."""

import pathlib
import random
import signal
import subprocess
import time


class Server:
    """A Redis of our own, on a free port of the loopback and in a folder of its own."""

    def __init__(self, folder, log):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        for _ in range(50):
            self.port = random.randrange(20000, 32000)
            self.process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
                + ["--dir", str(self.folder), "--save", "", "--appendonly", "no"],
                stdout=log,
                stderr=log,
            )
            if self._answers():
                return
        raise SystemExit("no redis-server starts here")

    def _answers(self):
        while self.process.poll() is None:
            # Another server may have that port: ask for ours.
            info = self.cli("INFO", "server").stdout
            if f"process_id:{self.process.pid}" in info:
                return True
            time.sleep(0.02)
        return False

    def cli(self, *words):
        argv = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
