import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.security.KeyFactory
import java.security.MessageDigest
import java.security.Signature
import java.security.spec.PKCS8EncodedKeySpec
import java.time.Instant
import java.util.Base64

/** The first text of this name after the last `start`: in a grant, the access token. A JSON library does it better. */
fun text(json: String, start: String, name: String): String =
    Regex("\"$name\": ?\"([^\"]*)\"").find(json, json.lastIndexOf("\"$start\""))!!.groupValues[1]

fun main() {
    val process = ProcessBuilder("payres", "sandbox").redirectError(ProcessBuilder.Redirect.INHERIT).start()
    val sandbox = process.inputReader().readLine()
    val pem = text(sandbox, "client", "private_key").replace(Regex("-----[^-]+-----|\\\\n"), "")
    val key = KeyFactory.getInstance("Ed25519").generatePrivate(PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)))

    val url = text(sandbox, "base_url", "base_url") + "/"
    val access = """[{"type": "incoming-payment", "actions": ["create"], "identifier": "${text(sandbox, "bob", "address")}"}]"""
    val body = """{"access_token": {"access": $access}, "client": "${text(sandbox, "client", "wallet_address")}"}"""
    val base64 = Base64.getEncoder()
    val digest = "sha-256=:${base64.encodeToString(MessageDigest.getInstance("SHA-256").digest(body.toByteArray()))}:"
    val created = Instant.now().epochSecond
    val input = """("@method" "@target-uri" "content-digest");created=$created;keyid="${text(sandbox, "client", "kid")}""""
    val base = "\"@method\": POST\n\"@target-uri\": $url\n\"content-digest\": $digest\n\"@signature-params\": $input"
    val signature = Signature.getInstance("Ed25519").apply {
        initSign(key)
        update(base.toByteArray())
    }
    val request = HttpRequest.newBuilder(URI.create(url))
        .header("Content-Type", "application/json")
        .header("Content-Digest", digest)
        .header("Signature-Input", "sig=$input")
        .header("Signature", "sig=:${base64.encodeToString(signature.sign())}:")
        .POST(HttpRequest.BodyPublishers.ofString(body))
        .build()
    val answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString())
    println("Granted: ${answer.statusCode()}")
    process.outputStream.close()
    process.waitFor()
}
