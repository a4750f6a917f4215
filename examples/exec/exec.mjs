#!/usr/bin/env node
// Runs one command through the queue and prints its result envelope, with nothing but Node's own modules. See
// docs/wire.md.
//
//   SENSE_SESSION_FILE=ana.session SENSE_REDIS_URL=unix:///… node exec.mjs PACK VERB [ARGS [TIMEOUT_S]]
//   node exec.mjs git git.log '{"limit": 3}'
//
// ARGS is a JSON object. Exits 0 where the envelope is ok, 1 where it is not or none came.
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { Redis, address } from "../publish/publish.mjs";

const STREAM_LIMIT = 10_000;
const BLOCK_S = "2"; // under the connection's own timeout
const INFO = { exec1: "sense exec request 1", reply1: "sense exec reply 1" };

function netstrings(...parts) {
  return Buffer.concat(
    parts.map((part) => Buffer.from(part)).flatMap((part) => [Buffer.from(`${part.length}:`), part, Buffer.from(",")]),
  );
}

function key(scheme, secret) {
  return Buffer.from(hkdfSync("sha256", secret, "", INFO[scheme], 32));
}

// The fields of an entry, in the order of the wire. `nonce` is for the test vectors alone: never use one twice.
export function entry(session, messageId, signedAt, plain, nonce = randomBytes(12)) {
  const place = [session.session_id, messageId, signedAt];
  const cipher = createCipheriv("aes-256-gcm", key("exec1", session.secret), nonce);
  cipher.setAAD(netstrings("exec1", ...place));
  const body = Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
  const signed = netstrings("exec1", ...place, body);
  const signature = createHmac("sha256", session.secret).update(signed).digest("hex");
  return ["v", "1", "c", session.session_id, "i", messageId, "t", signedAt, "s", signature, "b", body];
}

// The plain reply; throws where it was not sealed for this request under this secret.
export function opened(session, messageId, signedAt, body) {
  const decipher = createDecipheriv("aes-256-gcm", key("reply1", session.secret), body.subarray(0, 12));
  decipher.setAAD(netstrings("reply1", session.session_id, messageId, signedAt));
  decipher.setAuthTag(body.subarray(-16));
  return Buffer.concat([decipher.update(body.subarray(12, -16)), decipher.final()]).toString("utf8");
}

export async function exec(session, redisUrl, packId, verbKey, args, timeoutS = 30) {
  const messageId = randomUUID().replaceAll("-", "");
  const plain = JSON.stringify({
    v: 1,
    session_id: session.session_id,
    message_id: messageId,
    project_id: null,
    timeout_ms: Math.round(timeoutS * 1000),
    idempotency_key: null,
    lane: "interactive",
    envelope: { pack_id: packId, verb_key: verbKey, args },
  });
  const { auth, db, connect } = address(redisUrl);
  const stream = `sense:${session.tenant}:exec`;
  const replyAt = `sense:${session.tenant}:reply:${messageId}`;
  const ends = Date.now() + timeoutS * 1000;
  const redis = new Redis(connect());
  try {
    if (auth) await redis.say("AUTH", ...auth);
    if (db) await redis.say("SELECT", String(db));
    if (Number(await redis.say("XLEN", stream)) >= STREAM_LIMIT) throw new Error(`${stream}: at its bound`);
    const signedAt = String(Math.floor(Date.now() / 1000));
    await redis.say("XADD", stream, "*", ...entry(session, messageId, signedAt, plain));
    while (Date.now() < ends) {
      const body = await redis.ask("BLMOVE", replyAt, replyAt, "LEFT", "LEFT", BLOCK_S);
      if (body) return JSON.parse(opened(session, messageId, signedAt, body));
    }
    throw new Error(`no answer within ${timeoutS} s`);
  } finally {
    redis.close();
  }
}

if (process.argv[1]?.endsWith("exec.mjs")) {
  const [packId, verbKey, args = "{}", timeoutS = "30"] = process.argv.slice(2);
  try {
    if (!packId || !verbKey) throw new Error("usage: exec.mjs PACK VERB [ARGS [TIMEOUT_S]]");
    const file = process.env.SENSE_SESSION_FILE;
    if (!file) throw new Error("SENSE_SESSION_FILE is not set (run `sense-worker session create`)");
    const session = JSON.parse(readFileSync(file, "utf8"));
    const envelope = await exec(session, process.env.SENSE_REDIS_URL, packId, verbKey, JSON.parse(args), Number(timeoutS));
    console.log(JSON.stringify(envelope));
    process.exitCode = envelope.ok ? 0 : 1;
  } catch (error) {
    console.error(`exec.mjs: ${error.message}`);
    process.exitCode = 1;
  }
}
