"""Drives a Python client for test/clients: driver.py CLIENT COMMAND key=value..."""

import importlib
import logging
import sys

import protocol

# Modules with a function for each command.
CLIENTS = {
    "confluent-kafka": "with_confluent",
    "kafka-python": "with_kafka_python",
    "aiokafka": "with_aiokafka",
}


def main(words):
    if len(words) < 2 or words[0] not in CLIENTS:
        raise protocol.Failure(f"usage: driver.py {'|'.join(CLIENTS)} COMMAND key=value...")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    args = protocol.arguments(words[1], words[2:])
    getattr(importlib.import_module(CLIENTS[words[0]]), words[1])(args)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except protocol.Failure as failure:
        sys.exit(f"{failure}")
