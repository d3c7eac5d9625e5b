"""The PySpark jobs that run beside the brokers. They use the brokers only through the Kafka protocol."""
