"""A registry that refuses a change which would break readers. Runs one of its own on a free port."""

import re
import subprocess
import sys

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "order_id", "type": "string"}]}'
CHANGED = '{"type": "record", "name": "Order", "fields": [{"name": "order_id", "type": "long"}]}'


def use(url: str) -> None:
    value = SerializationContext("orders", MessageField.VALUE)
    with SchemaRegistryClient({"url": url}) as registry:
        data = AvroSerializer(registry, ORDER)({"order_id": "o1"}, value)
        print(AvroDeserializer(registry)(data, value))
        try:
            registry.register_schema("orders-value", Schema(CHANGED, "AVRO"))
        except SchemaRegistryError as error:
            print(error.http_status_code, str(error.error_message).partition("details: ")[2])


def main() -> None:
    command = [sys.executable, "-m", "posthouse", "registry", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            found = re.search(r"http://\S+", server.stdout.readline() if server.stdout else "")
            use(found[0] if found else "")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
