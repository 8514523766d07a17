cockpit.locale({
    "": { "plural-forms": n => n !== 1, "language": "de", "language-direction": "ltr" },
    "Service quality": [null, "Dienstgüte"],
    "qosd": [null, "qosd"],
    "qosctl": [null, "qosctl"],
    "latency": [null, "Latenz"],
    "requests": [null, "Anfragen"],
    "errors": [null, "Fehler"],
    "threshold": [null, "Schwellwert"],
    "bottleneck": [null, "Engpass"],
    "service": [null, "Dienst"]
});
