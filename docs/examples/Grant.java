import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyFactory;
import java.security.MessageDigest;
import java.security.Signature;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Instant;
import java.util.Base64;
import java.util.regex.Pattern;

public class Grant {
    static final Base64.Encoder BASE64 = Base64.getEncoder();

    /** The first text of this name after the last `start`: in a grant, the access token. A JSON library does it better. */
    static String text(String json, String start, String name) {
        var found = Pattern.compile("\"" + name + "\": ?\"([^\"]*)\"").matcher(json);
        if (!found.find(json.lastIndexOf('"' + start + '"'))) throw new IllegalArgumentException(json);
        return found.group(1);
    }

    public static void main(String[] arguments) throws Exception {
        Process process = new ProcessBuilder("payres", "sandbox").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String sandbox = process.inputReader().readLine();
        String pem = text(sandbox, "client", "private_key").replaceAll("-----[^-]+-----|\\\\n", "");
        var key = KeyFactory.getInstance("Ed25519").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)));

        String url = text(sandbox, "base_url", "base_url") + "/";
        String body = """
            {"access_token": {"access": [{"type": "incoming-payment", "actions": ["create"], "identifier": "%s"}]}, "client": "%s"}"""
            .formatted(text(sandbox, "bob", "address"), text(sandbox, "client", "wallet_address"));
        byte[] hash = MessageDigest.getInstance("SHA-256").digest(body.getBytes());
        String digest = "sha-256=:" + BASE64.encodeToString(hash) + ":";
        String input = "(\"@method\" \"@target-uri\" \"content-digest\");created=%d;keyid=\"%s\""
            .formatted(Instant.now().getEpochSecond(), text(sandbox, "client", "kid"));
        String base = "\"@method\": POST\n\"@target-uri\": %s\n\"content-digest\": %s\n\"@signature-params\": %s"
            .formatted(url, digest, input);
        Signature signature = Signature.getInstance("Ed25519");
        signature.initSign(key);
        signature.update(base.getBytes());
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
            .header("Content-Type", "application/json")
            .header("Content-Digest", digest)
            .header("Signature-Input", "sig=" + input)
            .header("Signature", "sig=:" + BASE64.encodeToString(signature.sign()) + ":")
            .POST(HttpRequest.BodyPublishers.ofString(body))
            .build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println("Granted: " + answer.statusCode());
        process.getOutputStream().close();
        process.waitFor();
    }
}
