"""What may come over a wire and should not: raw requests and answers, and what becomes of each."""
