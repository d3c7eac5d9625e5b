"""Drivers of the Kafka clients that Landline is held against: confluent-kafka, kafka-python, aiokafka and kcat."""
