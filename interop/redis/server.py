"""A Redis of our own."""

import subprocess

from own_server import OwnServer


class Server(OwnServer):
    """A Redis that keeps nothing."""

    def command(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"] + [
            "--dir", str(self.folder), "--save", "", "--appendonly", "no"
        ]

    def is_ours(self):
        # Another server may have that port.
        return f"process_id:{self.process.pid}" in self.cli("INFO", "server").stdout

    def cli(self, *words):
        argv = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)
