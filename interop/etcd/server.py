"""An etcd of our own."""

import subprocess
import time

from own_server import OwnServer


class Server(OwnServer):
    """An etcd of one member."""

    def command(self):
        client, peer = self.url, f"http://127.0.0.1:{self.port + 1}"
        return (
            ["etcd", "--name=interop", f"--data-dir={self.folder}/{self.port}"]
            + [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
            + [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
            + [f"--initial-cluster=interop={peer}"]
        )

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def is_ours(self):
        if self.ctl("endpoint", "health").returncode != 0:
            return False
        # Another server may have that port: then ours has ended, or will.
        time.sleep(0.1)
        return self.process.poll() is None

    def ctl(self, *words):
        argv = ["etcdctl", f"--endpoints={self.url}", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)
