"""What a configuration will do, said before anything is compiled."""
