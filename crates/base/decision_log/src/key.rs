//! Keys of an operator, as PEM files that openssl(1) makes and reads.

use ed25519_dalek::pkcs8::{
    DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, KeypairBytes,
};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};

use crate::line::hex;

/// A private key, which signs.
pub struct Key(SigningKey);

/// A public key, which checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl Key {
    /// A key from 32 random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Key {
        Key(SigningKey::from_bytes(seed))
    }

    /// Reads PKCS#8 in PEM, as `openssl genpkey -algorithm ed25519` writes it.
    pub fn from_pem(text: &str) -> Result<Key, String> {
        let read = SigningKey::from_pkcs8_pem(text);
        read.map(Key).map_err(|_| {
            "this is no private Ed25519 key in PEM: ringfence policy keygen or openssl genpkey -algorithm ed25519 \
             makes one"
                .into()
        })
    }

    /// Writes PKCS#8 in PEM.
    pub fn to_pem(&self) -> Result<String, String> {
        // The form without the public key, which all versions of openssl(1) read.
        let pair = KeypairBytes { secret_key: self.0.to_bytes(), public_key: None };
        let pem = pair.to_pkcs8_pem(Default::default()).map_err(|error| error.to_string())?;
        Ok(pem.as_str().to_owned())
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl PublicKey {
    /// Reads PEM, as `openssl pkey -pubout` writes it.
    pub fn from_pem(text: &str) -> Result<PublicKey, String> {
        let read = VerifyingKey::from_public_key_pem(text);
        read.map(PublicKey).map_err(|_| match SigningKey::from_pkcs8_pem(text) {
            Ok(_) => "this is a private key: give the public one (openssl pkey -in KEY -pubout)".into(),
            Err(_) => "this is no public Ed25519 key in PEM: openssl pkey -in KEY -pubout writes one".into(),
        })
    }

    /// Writes PEM.
    pub fn to_pem(&self) -> Result<String, String> {
        self.0.to_public_key_pem(Default::default()).map_err(|error| error.to_string())
    }

    /// Which key it is: the SHA-256 of its DER form, in hexadecimal digits.
    pub fn id(&self) -> String {
        let der = self.0.to_public_key_der().map(|der| der.as_bytes().to_vec()).unwrap_or_default();
        hex(&Sha256::digest(der))
    }

    pub(crate) fn checks(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}
