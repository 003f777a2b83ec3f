"""What the tests of the broker's programs are made of.

events.py   waiting for something to hold
brokers.py  mqtick-broker, also as a gateway, with its log, its metrics and clients for it
sites.py    sites of mqtick-join: a node and the broker behind it
servers.py  a broker that the test itself plays
sensors.py  MQTT-SN, as other authors' decoders read it
others.py   clients that want to be served while somebody else does harm
timing.py   time through brokers: what copies state, wires that take a while
tools.py    certificates, memory, libraries that stand before the system's
clock.py    a clock that a test steps or slews, for one program only
networks.py another network beyond a link
sessions.py random sessions of clients, and in what two brokers differ

Raw clients of MQTT are those of broker/conformance; our Python programs are in tests/rig.py.
"""
