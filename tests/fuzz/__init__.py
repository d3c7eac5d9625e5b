"""Coverage-guided fuzzing of every decoder that reads what others wrote: ``make fuzz``, by atheris."""
