// One task on stdin, one answer on stdout: register or decode with a registry client for JavaScript.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(process.argv[2]);
const { SchemaRegistry } = require("@kafkajs/confluent-schema-registry");
const task = JSON.parse(readFileSync(0, "utf8"));
const registry = new SchemaRegistry({ host: task.url, auth: task.auth });
let answer;
if (task.register) {
  const options = { subject: task.subject };
  const { id } = await registry.register(task.register, options);
  const data = await registry.encode(id, task.value);
  answer = { id, data: data.toString("base64"), decoded: await registry.decode(data) };
} else if (task.decode) {
  answer = { decoded: await registry.decode(Buffer.from(task.decode, "base64")) };
} else {
  answer = { id: await registry.getLatestSchemaId(task.latest) };
}
process.stdout.write(JSON.stringify(answer));
