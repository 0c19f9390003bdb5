use base64::{engine::general_purpose::STANDARD, Engine};
use ed25519_dalek::{pkcs8::DecodePrivateKey, Signer, SigningKey};
use serde_json::{json, Value};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut child = Command::new("payres").arg("sandbox").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line)?;
    let sandbox: Value = serde_json::from_str(&line)?;
    let text = |pointer: &str| sandbox.pointer(pointer).unwrap().as_str().unwrap().to_string();
    let key = SigningKey::from_pkcs8_pem(&text("/client/private_key"))?;

    let url = text("/base_url") + "/";
    let access = json!([{"type": "incoming-payment", "actions": ["create"], "identifier": text("/wallets/bob/address")}]);
    let body = json!({"access_token": {"access": access}, "client": text("/client/wallet_address")}).to_string();
    let digest = format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(&body)));
    let created = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let input = format!(r#"("@method" "@target-uri" "content-digest");created={created};keyid="{}""#, text("/client/kid"));
    let base = format!("\"@method\": POST\n\"@target-uri\": {url}\n\"content-digest\": {digest}\n\"@signature-params\": {input}");
    let signature = STANDARD.encode(key.sign(base.as_bytes()).to_bytes());
    let answer = ureq::post(&url)
        .header("Content-Type", "application/json")
        .header("Content-Digest", &digest)
        .header("Signature-Input", &format!("sig={input}"))
        .header("Signature", &format!("sig=:{signature}:"))
        .send(body.as_str())?;
    println!("Granted: {}", answer.status());
    drop(child.stdin.take());
    child.wait()?;
    Ok(())
}
