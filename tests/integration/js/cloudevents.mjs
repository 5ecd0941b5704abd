// Reads one JSON task per line on stdin, answers one JSON line each:
//   {"read": {headers, body}}            -> the event as the SDK understands it
//   {"write": {event, data?}, "mode": m} -> {headers, body}
// Bodies are base64 so that any bytes pass. The SDK's folder is the first argument.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { CloudEvent, HTTP } = createRequire(process.argv[2])("cloudevents");
const base64 = (bytes) => Buffer.from(bytes).toString("base64");

function read({ headers, body }) {
  const bytes = Buffer.from(body, "base64");
  const json = /json/.test(headers["content-type"] ?? "");
  const event = HTTP.toEvent({ headers, body: json ? bytes.toString("utf8") : bytes });
  event.validate();
  const { data, ...attributes } = JSON.parse(JSON.stringify({ ...event, data: undefined }));
  const binary = ArrayBuffer.isView(event.data);
  return { attributes, data: binary ? null : event.data, bytes: binary ? base64(event.data) : null };
}

function write({ event, bytes }, mode) {
  const data = bytes === undefined ? event.data : Uint8Array.from(Buffer.from(bytes, "base64"));
  const { headers, body } = HTTP[mode](new CloudEvent({ ...event, data }));
  return { headers, body: base64(body ?? "") };
}

for await (const line of createInterface({ input: process.stdin })) {
  const task = JSON.parse(line);
  console.log(JSON.stringify(task.read ? read(task.read) : write(task.write, task.mode)));
}
