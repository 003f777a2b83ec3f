//! What carries MQTT's octets.

/// What carries MQTT's octets.
pub enum Transport {
    /// Nothing else.
    Plain,
}

impl Transport {
    /// Take what the socket brought.
    pub fn receive(&mut self, octets: &[u8], plain: &mut Vec<u8>, _wire: &mut Vec<u8>) -> Result<(), String> {
        plain.extend_from_slice(octets);
        Ok(())
    }
    /// Send.
    pub fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), String> {
        wire.extend_from_slice(plain);
        Ok(())
    }
    /// Close.
    pub fn close(&mut self, _wire: &mut Vec<u8>) {}
}
