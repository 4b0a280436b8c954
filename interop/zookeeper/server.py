"""A ZooKeeper of our own."""

import pathlib
import random
import socket
import subprocess
import time

JARS = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar"


class Server:
    """A ZooKeeper of our own, on a free port of the loopback and in a folder of its own."""

    def __init__(self, folder, log, durable=False):
        # Durable means that each transaction is flushed, as a server does by default.
        flush = [] if durable else ["-Dzookeeper.forceSync=no"]
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        for _ in range(50):
            self.port = random.randrange(20000, 32000)
            config = self.folder / "config"
            config.write_text(
                f"tickTime=200\nminSessionTimeout=400\nmaxSessionTimeout=600000\n"
                f"clientPort={self.port}\nclientPortAddress=127.0.0.1\n"
                f"dataDir={self.folder}/data\nadmin.enableServer=false\n"
                f"4lw.commands.whitelist=*\nmaxClientCnxns=0\n",
                encoding="utf-8",
            )
            self.process = subprocess.Popen(
                ["java", "-Xmx128m", "-XX:+UseSerialGC", *flush, "-cp", JARS]
                + ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)],
                stdout=log,
                stderr=log,
            )
            if self._answers():
                return
        raise SystemExit("no ZooKeeper starts here")

    def _answers(self):
        while self.process.poll() is None:
            # Another server may have that port: ask for ours.
            if f"dataDir={self.folder}/data" in self._word("conf"):
                return True
            time.sleep(0.05)
        return False

    def _word(self, word):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as stream:
                stream.sendall(word.encode())
                return "".join(iter(lambda: stream.recv(4096).decode(), ""))
        except OSError:
            return ""

    def stop(self):
        self.process.kill()
        self.process.wait()
