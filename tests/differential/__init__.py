"""The same requests to Apache Kafka 3.9.1 and to Landline, with every answer compared."""
