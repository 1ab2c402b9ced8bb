// Locks with node-redlock; see ../README.md.

import { createInterface } from "node:readline";
import Redis from "ioredis";
import redlock from "redlock";

const Redlock = redlock.default ?? redlock;
const { ExecutionError } = await import("redlock");

const client = new Redis({ host: process.argv[2], port: Number(process.argv[3]) });
const once = new Redlock([client], { retryCount: 0 });
const patient = new Redlock([client], { retryCount: -1, retryDelay: 50, retryJitter: 10 });
let lock;

async function orElse(refusal, work) {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ExecutionError) return refusal;
    throw error;
  }
}

async function obey(order, ...words) {
  switch (order) {
    case "try":
    case "wait":
      return orElse("refused", async () => {
        const locks = order === "try" ? once : patient;
        lock = await locks.acquire([words[0]], Number(words[1]));
        return "held";
      });
    case "extend":
      return orElse("not held", async () => {
        lock = await once.extend(lock, Number(words[0]));
        return "extended";
      });
    case "release":
      return orElse("not held", async () => {
        await once.release(lock);
        return "released";
      });
    default:
      throw new Error(order);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(await obey(...line.trim().split(/\s+/)));
}
client.disconnect();
