"""One turn of an agent: what it reads, what its reports do, what it does next."""
