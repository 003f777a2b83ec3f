"""The hardware broker's RTL in simulated time: datagrams, the program around it, run folders."""
