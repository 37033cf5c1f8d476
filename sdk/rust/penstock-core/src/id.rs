//! The sixteen bytes that name a dataset, a sample or an object.

use std::fmt;

/// A UUID as raw bytes. Prints in the hyphenated form that users see everywhere else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Id([u8; 16]);

impl Id {
    pub const LENGTH: usize = 16;

    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// `None` when the slice is not exactly sixteen bytes long.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// 32 hexadecimal digits without hyphens: the form used in folder names.
    pub fn to_hex(self) -> String {
        uuid::Uuid::from_bytes(self.0).simple().to_string()
    }

    /// Reads what `to_hex` wrote.
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 32 {
            return None;
        }
        uuid::Uuid::try_parse(text)
            .ok()
            .map(|uuid| Self(uuid.into_bytes()))
    }
}

impl From<uuid::Uuid> for Id {
    fn from(uuid: uuid::Uuid) -> Self {
        Self(uuid.into_bytes())
    }
}

impl From<Id> for uuid::Uuid {
    fn from(id: Id) -> Self {
        Self::from_bytes(id.0)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&uuid::Uuid::from_bytes(self.0).hyphenated(), f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Id;

    #[test]
    fn hex_form_round_trips() {
        let id = Id::new(*b"0123456789abcdef");
        assert_eq!(Id::from_hex(&id.to_hex()), Some(id));
        assert_eq!(id.to_string(), "30313233-3435-3637-3839-616263646566");
    }

    #[test]
    fn from_slice_refuses_other_lengths() {
        assert_eq!(Id::from_slice(&[0; 15]), None);
        assert_eq!(Id::from_slice(&[0; 17]), None);
    }
}
