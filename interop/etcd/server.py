"""An etcd of our own."""

import pathlib
import random
import signal
import subprocess
import time


class Server:
    """An etcd of our own, on free ports of the loopback and in a folder of its own."""

    def __init__(self, folder, log):
        self.folder = pathlib.Path(folder)
        for _ in range(50):
            self.port = random.randrange(20000, 32000)
            client, peer = self.url, f"http://127.0.0.1:{self.port + 1}"
            self.process = subprocess.Popen(
                ["etcd", "--name=interop", f"--data-dir={self.folder}-{self.port}"]
                + [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
                + [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
                + [f"--initial-cluster=interop={peer}"],
                stdout=log,
                stderr=log,
            )
            if self._answers():
                return
        raise SystemExit("no etcd starts here")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def _answers(self):
        while self.process.poll() is None:
            if self.ctl("endpoint", "health").returncode == 0:
                # Another server may have that port: then ours has ended, or will.
                time.sleep(0.1)
                return self.process.poll() is None
            time.sleep(0.05)
        return False

    def ctl(self, *words):
        argv = ["etcdctl", f"--endpoints={self.url}", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
