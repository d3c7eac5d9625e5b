"""Drivers of the Kafka clients that Landline is tested with: confluent-kafka, kafka-python, aiokafka
and kcat.
"""
