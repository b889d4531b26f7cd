"""The pool's manager: connections of clients, workers and children around one Dispatcher."""
