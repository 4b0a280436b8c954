"""The processes of the cases: partners that speak lines, and clinch."""

import json
import os
import queue
import subprocess
import threading
import time

# How long anything that must happen may take, on the slowest machine.
PATIENCE = 60


class Lines:
    """A process whose lines of output are read as they come."""

    def __init__(self, argv, log, **settings):
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            **settings,
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(self.heard(line.strip()))
        self.lines.put(None)

    def heard(self, line):
        """What of a line is kept."""
        return line

    def next(self, patience=PATIENCE):
        """The next line; None at the end."""
        try:
            return self.lines.get(timeout=patience)
        except queue.Empty:
            raise AssertionError(f"no line within {patience} s") from None

    def is_silent(self, span):
        """Whether it says nothing for so long."""
        try:
            self.lines.put(self.lines.get(timeout=span))
            return False
        except queue.Empty:
            return True

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Closes its input and waits for it to end."""
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


class Partner(Lines):
    """A process that takes locks with another library."""

    def __init__(self, argv, log):
        super().__init__(argv, log)
        assert self.next() == "ready"

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def ask(self, *words):
        self.send(*words)
        reply = self.next()
        assert reply in ("yes", "no"), f"{words}: {reply}"
        return reply == "yes"


class Holder(Lines):
    """clinch, which holds a lock and says so; a token that it adds is left out."""

    def heard(self, line):
        return " ".join(line.split()[:2])


class Clinch:
    """The command, on one store."""

    def __init__(self, program, store, log):
        self.program, self.log = program, log
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("CLINCH")},
            "CLINCH_STORE": store,
        }

    def _argv(self, *words):
        return [self.program, *map(str, words)]

    def run(self, *words, **settings):
        """Runs it to its end."""
        return subprocess.run(
            self._argv(*words),
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 3,
            check=False,
            **settings,
        )

    def is_refused(self, name):
        """Whether a claim that does not wait says no (status 75)."""
        done = self.run("run", "--no-wait", name, "--", "true")
        assert done.returncode in (0, 75), done.stderr
        return done.returncode == 75

    def waiters(self, name):
        """How many wait for it, theirs and ours."""
        shown = json.loads(self.run("show", "--json", name).stdout or "{}")
        return len(shown.get("waiters", []))

    def until_waiters(self, name, count):
        end = time.monotonic() + PATIENCE
        while self.waiters(name) != count:
            assert time.monotonic() < end, f"{self.waiters(name)} wait"
            time.sleep(0.02)

    def start(self, *words):
        """Starts it with its lines to be read."""
        return self.start_as(self._argv(*words))

    def start_as(self, argv):
        """Starts something that uses it."""
        return Lines(argv, self.log, env=self.env)

    def claim(self, name, lease="60s"):
        """Starts to claim, and holds until the end of input; says `held NAME`."""
        argv = self._argv("hold", "--quiet", "--stdin", "--lease", lease, name)
        return Holder(argv, self.log, env=self.env)

    def hold(self, name, lease="60s"):
        """Holds it."""
        holder = self.claim(name, lease)
        line = holder.next()
        assert line == f"held {name}", line
        return holder


def since(start):
    return time.monotonic() - start
