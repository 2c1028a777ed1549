#!/usr/bin/env bash
# Makes the keys, certificates and credentials of a cluster, and from them what the manifests
# refer to and do not have:
#
#	./secrets.sh DIR [SUPERVISORS] && kubectl apply -f DIR/secrets.yaml
#
# It needs isobar, openssl and kubectl, and no access to the cluster. DIR must not be there yet.
# It is secret: keep it as docs/cluster.md says.
set -euo pipefail
dir=${1:?give the folder to make} supervisors=${2:-3} namespace=isobar
umask 077
mkdir "$dir"
cd "$dir"

# authority NAME makes NAME.pem and NAME.key.
authority() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
		-subj "/CN=$1" -keyout "$1.key" -out "$1.pem"
}

# certificate AUTHORITY NAME SAN makes NAME.pem and NAME.key, good for servers and clients.
certificate() {
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -keyout "$2.key" -out "$2.csr"
	printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$3" >"$2.ext"
	openssl x509 -req -in "$2.csr" -CA "$1.pem" -CAkey "$1.key" -CAcreateserial -days 825 -extfile "$2.ext" -out "$2.pem"
}

# object KIND NAME ARGUMENT… appends a Secret or ConfigMap to secrets.yaml.
object() {
	kubectl create "$@" --namespace "$namespace" --dry-run=client -o yaml
	echo ---
}

isobar nats init keys
authority nats-ca
authority links-ca
certificate nats-ca nats "DNS:*.isobar-nats.$namespace.svc"
certificate links-ca links "DNS:*.isobar-supervisor.$namespace.svc"
isobar nats creds nimbus nimbus --keys keys -o nimbus.creds
files=()
for ((i = 0; i < supervisors; i++)); do
	isobar nats creds supervisor "isobar-supervisor-$i" --keys keys -o "isobar-supervisor-$i.creds"
	files+=("--from-file=isobar-supervisor-$i.creds")
done

claims=(--from-file=keys/operator.jwt --from-file=keys/account.jwt --from-file=keys/system.jwt)
{
	object configmap isobar-trust --from-file=nats-ca.pem "${claims[@]}"
	object secret generic isobar-nats-tls --from-file=tls.crt=nats.pem --from-file=tls.key=nats.key
	object secret generic isobar-links-tls --from-file=tls.crt=links.pem --from-file=tls.key=links.key --from-file=ca.crt=links-ca.pem
	object secret generic isobar-nimbus --from-file=nimbus.creds --from-file=keys/account.nk "${claims[@]}"
	object secret generic isobar-supervisor "${files[@]}"
} >secrets.yaml
echo "All is in $dir; next: kubectl apply -f $dir/secrets.yaml"
