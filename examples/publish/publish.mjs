#!/usr/bin/env node
// Announces one change, with nothing but Node's own modules. See docs/wire.md.
//
//   SENSE_ACTIVATION_FILE=/path/to/activation.json node publish.mjs REF DATA [SUBJECT [MESSAGE_ID]]
//   node publish.mjs commit.created '{"commit": "1f33bd0"}' main
//
// DATA is a JSON object. Prints the stream id of the entry.
import { createHmac, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import net from "node:net";
import tls from "node:tls";

const STREAM_LIMIT = 100_000;
const TIMEOUT_MS = 5_000;

// The fields of an entry, in the order of the wire.
export function entry(activation, messageId, signedAt, body) {
  const parts = ["sense1", activation.activation_id, messageId, signedAt, body];
  const netstrings = parts.map((part) => `${Buffer.byteLength(part)}:${part},`).join("");
  const signature = createHmac("sha256", activation.secret).update(netstrings).digest("hex");
  return ["v", "1", "c", activation.activation_id, "i", messageId, "t", signedAt, "s", signature, "b", body];
}

// What a redis URL says. Node's own parser takes no name and password in a unix:// URL.
export function address(url) {
  const found =
    /^(unix|redis|rediss):\/\/(?:([^:@/]*):([^@/]*)@)?(?:(\[[^\]/]+\]|[^:/@]+)(?::(\d+))?)?(\/[^?]*)?(?:\?db=(\d+))?$/.exec(url ?? "");
  if (!found) throw new Error("redis_url: is no redis://, rediss:// or unix:// address"); // it may hold a password
  const [, scheme, name, password, host, port, path, db] = found.map((part) => part && decodeURIComponent(part));
  const auth = password ? [...(name ? [name] : []), password] : null;
  if (scheme === "unix") return { auth, db: Number(db ?? 0), connect: () => net.connect(path) };
  const to = { host: host.replace(/^\[|\]$/g, ""), port: Number(port ?? 6379) };
  const connect = () => (scheme === "rediss" ? tls.connect({ ...to, servername: to.host }) : net.connect(to));
  return { auth, db: Number(db ?? path?.slice(1) ?? 0), connect };
}

// A connection that says commands one by one; enough of the protocol for a publisher, and for ../exec/exec.mjs.
export class Redis {
  #socket;
  #read = Buffer.alloc(0);
  #waiting = null;

  constructor(socket) {
    this.#socket = socket;
    this.#socket.setTimeout(TIMEOUT_MS, () => this.#socket.destroy(new Error("the server does not answer")));
    this.#socket.on("error", (error) => this.#waiting?.reject(error));
    this.#socket.on("close", () => this.#waiting?.reject(new Error("the server closed the connection")));
    this.#socket.on("data", (bytes) => {
      this.#read = Buffer.concat([this.#read, bytes]);
      this.#answer();
    });
  }

  async say(...words) {
    return (await this.ask(...words))?.toString("utf8");
  }

  // Words may be bytes; so is the answer, or null.
  ask(...words) {
    const packed = words.flatMap((word) => [`$${Buffer.byteLength(word)}\r\n`, word, "\r\n"]);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#socket.write(Buffer.concat([`*${words.length}\r\n`, ...packed].map((part) => Buffer.from(part))));
    });
  }

  #answer() {
    const end = this.#read.indexOf("\r\n");
    if (end < 0) return;
    let answer = this.#read.subarray(1, end);
    const kind = String.fromCharCode(this.#read[0]);
    let next = end + 2;
    if (["$", "*"].includes(kind) && Number(answer) < 0) {
      answer = null;
    } else if (kind === "$") {
      next += Number(answer) + 2;
      if (this.#read.length < next) return;
      answer = this.#read.subarray(end + 2, next - 2);
    }
    this.#read = this.#read.subarray(next);
    if (kind === "-") this.#waiting.reject(new Error(`the server said: ${answer}`));
    else this.#waiting.resolve(answer);
  }

  close() {
    this.#waiting = null;
    this.#socket.destroy();
  }
}

export async function publish(activation, ref, data, { subject, messageId = randomUUID() } = {}) {
  // JSON.stringify leaves an undefined subject out.
  const body = JSON.stringify({ ref, data, subject, occurred_at: new Date().toISOString() });
  const { auth, db, connect } = address(activation.redis_url);
  const key = `sense:${activation.tenant}:events`;
  const redis = new Redis(connect());
  try {
    if (auth) await redis.say("AUTH", ...auth);
    if (db) await redis.say("SELECT", String(db));
    // The stream is bounded by refusal: nobody trims what was not read yet.
    if (Number(await redis.say("XLEN", key)) >= STREAM_LIMIT) throw new Error(`${key}: at its bound, try again later`);
    const signedAt = String(Math.floor(Date.now() / 1000));
    return await redis.say("XADD", key, "*", ...entry(activation, messageId, signedAt, body));
  } finally {
    redis.close();
  }
}

if (process.argv[1]?.endsWith("publish.mjs")) {
  const [ref, data, subject, messageId] = process.argv.slice(2);
  try {
    if (!ref || !data) throw new Error("usage: publish.mjs REF DATA [SUBJECT [MESSAGE_ID]]");
    const file = process.env.SENSE_ACTIVATION_FILE;
    if (!file) throw new Error("SENSE_ACTIVATION_FILE is not set (run `sense-worker activate PACK`)");
    const activation = JSON.parse(readFileSync(file, "utf8"));
    console.log(await publish(activation, ref, JSON.parse(data), { subject, messageId }));
  } catch (error) {
    console.error(`publish.mjs: ${error.message}`);
    process.exitCode = 1;
  }
}
