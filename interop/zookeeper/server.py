"""A ZooKeeper of our own."""

import socket

from own_server import OwnServer

JARS = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar"


class Server(OwnServer):
    """A ZooKeeper alone, with short ticks."""

    # Whether each transaction is flushed, as a server does by default.
    durable = False

    def command(self):
        flush = [] if self.durable else ["-Dzookeeper.forceSync=no"]
        config = self.folder / "config"
        config.write_text(
            f"tickTime=200\nminSessionTimeout=400\nmaxSessionTimeout=600000\n"
            f"clientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"dataDir={self.folder}/data\nadmin.enableServer=false\n"
            f"4lw.commands.whitelist=*\nmaxClientCnxns=0\n",
            encoding="utf-8",
        )
        return (
            ["java", "-Xmx128m", "-XX:+UseSerialGC", *flush, "-cp", JARS]
            + ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        )

    def is_ours(self):
        # Another server may have that port.
        return f"dataDir={self.folder}/data" in self._word("conf")

    def _word(self, word):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as stream:
                stream.sendall(word.encode())
                return "".join(iter(lambda: stream.recv(4096).decode(), ""))
        except OSError:
            return ""
