"""The PySpark jobs that run beside the brokers. They know the brokers by the Kafka protocol alone."""
