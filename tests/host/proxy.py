"""nginx in front of the hub of a host, by the sample that the package installs."""

from __future__ import annotations

from tests.host.machine import Host


def start_proxy(host: Host) -> None:
    """On port 443, with a certificate of its own; but for that the sample as it is."""
    host.sh(
        "cd /etc/nginx && sed -e 's,/etc/ssl/hub.example.com,/etc/nginx/tls,'"
        " /usr/share/doc/cordata/examples/nginx.conf >sites-enabled/default && mkdir -p tls &&"
        " openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        " -subj /CN=hub.example.com -keyout tls/privkey.pem -out tls/fullchain.pem 2>/dev/null"
    )
    host.systemctl("start", "nginx")
