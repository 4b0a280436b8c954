// Takes locks with node-redlock as the lines on standard input say; each gets one line in reply.

import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import Redis from "ioredis";
import redlock from "redlock";

const Redlock = redlock.default ?? redlock;
const client = new Redis(Number(process.argv[2]), "127.0.0.1");
const settings = { retryDelay: 100, retryJitter: 50, automaticExtensionThreshold: 500 };
const waiting = new Redlock([client], { ...settings, retryCount: -1 });
const trying = new Redlock([client], { ...settings, retryCount: 0 });
for (const each of [waiting, trying]) each.on("error", () => {});
const held = new Map();

async function answer(verb, name, ...rest) {
  const lease = Number(rest[0]);
  switch (verb) {
    case "try":
    case "lock":
      try {
        held.set(name, await (verb === "lock" ? waiting : trying).acquire([name], lease));
        return "yes";
      } catch {
        return "no";
      }
    case "unlock":
      await held.get(name).release();
      return "yes";
    case "count": {
      const [, file, workers, times] = rest;
      // Adds to the number in a file: wrong unless the lock excludes.
      const work = async () => {
        for (let n = 0; n < Number(times); n++) {
          const lock = await waiting.acquire([name], lease);
          const number = Number(readFileSync(file, "utf8"));
          await new Promise((resolve) => setImmediate(resolve));
          writeFileSync(file, `${number + 1}\n`);
          await lock.release();
        }
      };
      await Promise.all(Array.from({ length: Number(workers) }, work));
      return "yes";
    }
    default:
      return "what?";
  }
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  console.log(await answer(...line.split(" ")));
}
client.disconnect();
