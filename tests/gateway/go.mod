// Bisquitt, an MQTT-SN gateway of other authors, with which tests/test_accelerate_theirs.py tries
// mqtick-accelerate. Its module has another name than the place where it can be had.
module gateway

go 1.24.0

require github.com/energostack/bisquitt v0.9.1

replace github.com/energostack/bisquitt => github.com/energomonitor/bisquitt v0.9.1
